// Starts everything: the table sorts by a click on a header, the moving pictures take the place of their stills.

function sortable(table) {
  table.querySelectorAll("th").forEach((header, column) => {
    header.querySelector("button").addEventListener("click", () => {
      const up = header.getAttribute("aria-sort") !== "ascending";
      table.querySelectorAll("th").forEach((other) => other.removeAttribute("aria-sort"));
      header.setAttribute("aria-sort", up ? "ascending" : "descending");
      const rows = [...table.tBodies[0].rows];
      rows.sort((a, b) => (up ? 1 : -1) * compare(a.cells[column].dataset.value, b.cells[column].dataset.value));
      table.tBodies[0].append(...rows);
    });
  });
}

// Numbers before words, nothing last.
function compare(a, b) {
  const [x, y] = [a, b].map((v) => (v === "" ? Infinity : Number(v)));
  if (!Number.isNaN(x) && !Number.isNaN(y)) return x === y ? 0 : x - y;
  return a.localeCompare(b);
}

const SCENES = { sphere: sphereScene, frames: framesScene, chain: chainScene, planning: planningScene };
const report = JSON.parse(document.getElementById("data").textContent);
document.querySelectorAll("table.sortable").forEach(sortable);
for (const [name, scene] of Object.entries(report.scenes))
  SCENES[scene.kind](document.getElementById(`scene-${name}`), scene, report.view);
