"""The commands of the collective guide for several machines, by addresses and on PaddleCloud.

Two loopback addresses play the machines.
"""

import shutil
import subprocess

import pytest
from seed_programs import EPOCH, EXAMPLES, ROOT, environment
from tiny_imagenet import write_imagenet

from ports import consecutive_ports
from waiting import LIMIT

pytestmark = pytest.mark.slow  # starts jobs or servers

GUIDE = "000_collective_guide"
TINY = (
    "--model=ResNet18", "--class_dim=4", "--image_shape=3,16,16", "--resize_short_size=20",
    "--batch_size=2", "--num_epochs=1", "--reader_processes=0", "--log_every=1",
)  # fmt: skip


@pytest.fixture
def imagenet(tmp_path):
    """The training script and the commands beside each other, with pictures."""
    folder = tmp_path / "examples" / "imagenet"
    shutil.copytree(ROOT / "examples" / "imagenet", folder)
    commands = EXAMPLES / GUIDE / "commands"
    shutil.copytree(commands, tmp_path / "examples" / "seeds" / GUIDE / "commands")
    write_imagenet(folder / "ImageNet", train=8, val=2)
    return folder


def command(imagenet, name):
    return imagenet.parent / "seeds" / GUIDE / "commands" / name


def steps(text):
    return [int(batch) for _, batch in EPOCH.findall(text)]


HOSTS = ["127.0.0.1", "127.0.0.2"]


def by_address(imagenet, number, port):
    """The command of the guide for clusters: every machine gets its address as an argument."""
    settings = {"IPS": ",".join(HOSTS), "PORT": str(port)}
    return [command(imagenet, "machine.sh"), HOSTS[number], *TINY, "--fp16=True"], settings


def by_paddlecloud(imagenet, number, port):
    """The start command of a job on PaddleCloud, which says in the environment what there is."""
    settings = {"PADDLE_TRAINERS": ",".join(HOSTS), "POD_IP": HOSTS[number]}
    settings |= {"PADDLE_TRAINER_ID": str(number), "TRAINER_PORTS_NUM": "1"}
    return [command(imagenet, "paddlecloud.sh"), *TINY], {**settings, "PADDLE_PORT": str(port)}


@pytest.mark.parametrize("start", [by_address, by_paddlecloud])
def test_two_machines(imagenet, tmp_path, start):
    port = consecutive_ports(1, HOSTS)
    running = []
    try:
        for number, host in enumerate(HOSTS):
            (tmp_path / host).mkdir()
            parts, settings = start(imagenet, number, port)
            settings = {**settings, "GPUS": "0", "DATA": str(imagenet / "ImageNet")}
            running.append(
                subprocess.Popen(
                    ["sh", *parts],
                    cwd=tmp_path / host,
                    env=environment(tmp_path / host, **settings),
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
            )
        for process in running:
            printed, _ = process.communicate(timeout=LIMIT)
            assert process.returncode == 0, printed[-4000:]
            assert steps(printed) == [0, 1]
            assert f"{HOSTS[0]}:{port},{HOSTS[1]}:{port}" in printed
            assert f"fp16: {start is by_address}" in printed
    finally:
        for process in running:
            process.terminate()
            process.wait()
