"""What the outside world offers the benchmark: stores, backbones, embedders. Built from settings; no business rule."""
