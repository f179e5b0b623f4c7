"""The gallery: noise projected on every set, as a table and as pictures. Needs the extra inbounds[lab]."""
