"""Judges a flavor with Nova's own code: its schema, its validators of extra specs, its reading of them, and its fit onto a host.

Standard input: a JSON list of cases with `commands` (lists of words of `openstack` commands) and `host` (its NUMA nodes: `cpus`, `siblings`,
`memory` in MiB). Standard output: a JSON list with, for each case, `flavors`: for the flavor as it is created and for each later `flavor set`
the guest's nodes, its sockets, cores and threads, and the host's nodes that Nova takes; or `refused`: Nova's words.
"""

import argparse
import json
import sys
import warnings

warnings.simplefilter("ignore")

from nova import objects  # noqa: E402
from nova.api.openstack.compute.schemas import flavors  # noqa: E402
from nova.api.validation import validators as schema  # noqa: E402
from nova.api.validation.extra_specs import validators  # noqa: E402
from nova.virt import hardware  # noqa: E402

objects.register_all()


def words(command, options):
    """The options and the name of a command, each property as a pair."""
    parser = argparse.ArgumentParser(exit_on_error=False)
    for option in options:
        parser.add_argument(option, required=True)
    parser.add_argument("--property", action="append", default=[])
    parser.add_argument("name")
    parsed = vars(parser.parse_args(command))
    parsed["property"] = dict(pair.split("=", 1) for pair in parsed["property"])
    return parsed


def created(command):
    asked = words(command, ["--vcpus", "--ram", "--disk"])
    sizes = {key: int(asked[key]) for key in ("vcpus", "ram", "disk")}
    body = {"flavor": {"name": asked["name"], "id": "auto", **sizes}}
    schema._SchemaValidator(flavors.create_v2102).validate(body)
    return asked["name"], sizes, asked["property"]


def image(commands):
    """What the image says, as Nova reads it."""
    options = ["--disk-format", "--container-format", "--file"]
    made = [words(command[2:], options) for command in commands if command[:2] == ["image", "create"]]
    return objects.ImageMeta.from_dict({"properties": made[0]["property"] if made else {}})


def host_topology(nodes):
    cells = []
    for number, node in enumerate(nodes):
        pages = objects.NUMAPagesTopology(size_kb=4, total=node["memory"] * 256, used=0, reserved=0)
        cells.append(
            objects.NUMACell(
                id=number,
                socket=number,
                cpuset=set(node["cpus"]),
                pcpuset=set(node["cpus"]),
                siblings=[set(siblings) for siblings in node["siblings"]],
                memory=node["memory"],
                cpu_usage=0,
                memory_usage=0,
                pinned_cpus=set(),
                mempages=[pages],
                network_metadata=objects.NetworkMetadata(physnets=set(), tunneled=False),
            )
        )
    return objects.NUMATopology(cells=cells)


def judged(sizes, properties, image_meta, host):
    for key, value in properties.items():
        validators.validate(key, value)
    flavor = objects.Flavor(vcpus=sizes["vcpus"], memory_mb=sizes["ram"], extra_specs=properties)
    shape = hardware.get_best_cpu_topology(flavor, image_meta)
    answer = {"sockets": shape.sockets, "cores": shape.cores, "threads": shape.threads, "nodes": None, "homes": None}
    topology = hardware.numa_get_constraints(flavor, image_meta)
    if topology is None:
        return answer
    answer["nodes"] = [
        {"cpus": sorted(cell.total_cpus), "memory": cell.memory, "pinned": bool(cell.pcpuset), "page": cell.pagesize}
        for cell in topology.cells
    ]
    limits = objects.NUMATopologyLimits(cpu_allocation_ratio=1.0, ram_allocation_ratio=1.0)
    fitted = hardware.numa_fit_instance_to_host(host, topology, provider_mapping=None, limits=limits)
    answer["homes"] = [cell.id for cell in fitted.cells] if fitted else None
    return answer


def flavors_of(case):
    commands, host = case["commands"], host_topology(case["host"])
    image_meta = image(commands)
    name, sizes, properties = created(next(command[2:] for command in commands if command[:2] == ["flavor", "create"]))
    answers = [judged(sizes, properties, image_meta, host)]
    for command in commands:
        if command[:2] == ["flavor", "set"]:
            changed = words(command[2:], [])
            assert changed["name"] == name, changed["name"]
            answers.append(judged(sizes, {**properties, **changed["property"]}, image_meta, host))
    return answers


def answer(case):
    try:
        return {"flavors": flavors_of(case)}
    except Exception as refusal:
        return {"refused": f"{type(refusal).__name__}: {refusal}"}


if __name__ == "__main__":
    json.dump([answer(case) for case in json.load(sys.stdin)], sys.stdout)
