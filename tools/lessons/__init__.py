"""From one source a lesson, `solutions/NN_name.py`, to its notebooks: solved and unsolved, English and Chinese."""
