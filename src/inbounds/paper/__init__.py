"""The paper's experiments: names, presets, published numbers, table. Nothing outside this folder knows them."""
