"""The pictures of the lessons: pure functions, one module a lesson. Diagrams are SVG text, plots draw on a given figure."""
