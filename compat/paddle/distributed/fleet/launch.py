"""`python -m paddle.distributed.fleet.launch`: Fleet 2.0's name of the same launcher."""

from paddle.distributed.launch import launch

if __name__ == "__main__":
    launch()
