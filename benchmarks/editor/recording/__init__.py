"""Recording of real editors: the typed story, the frames with their times, and the pictures of both editors."""
