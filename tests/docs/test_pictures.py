"""The pictures that a tool makes are those that it makes now."""

from tools import detection_picture


def test_the_picture_of_detection_is_up_to_date():
    made, tool = detection_picture.picture(), "python tools/detection_picture.py"
    assert detection_picture.PICTURE.read_text(encoding="utf-8") == made, f"run `{tool}`"


def test_a_pair_at_the_default_threshold_is_nearly_always_found():
    assert round(detection_picture.detection(0.8, 20, 6), 3) == 0.998
