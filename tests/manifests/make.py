#!/usr/bin/env python3
"""Writes the manifests of this folder from the recordings' own labels.

    tests/manifests/make.py DATA        # DATA: the folder with the recordings, for example ../shared/data

Only file names, sessions and labels go into the manifests; no sample of a recording does.
"""
import bz2, csv, io, os, sys

data = sys.argv[1]
here = os.path.dirname(os.path.abspath(__file__))
relative = "../../../shared/data"


def write(name, head, rows):
    with open(os.path.join(here, name), "w") as f:
        f.write(head.strip() + "\n")
        for row in rows:
            f.write("\n[[recording]]\n" + "".join(f"{k} = {v}\n" for k, v in row.items()))


def q(text):
    return f'"{text}"'


def espectre():
    rows = []
    for label, truth in (("baseline", "empty"), ("movement", "motion")):
        for name in sorted(os.listdir(f"{data}/espectre/{label}")):
            _, chip, _, day, clock = name[:-4].split("_")
            # A session is the baseline and the movement take of one chip that lie closest in time; within a chip and
            # day they are the takes with the same rank.
            rank = sorted(n for n in os.listdir(f"{data}/espectre/{label}") if n.startswith(f"{label}_{chip}_")).index(name)
            row = {"path": q(f"{relative}/espectre/{label}/{name}"), "format": q("espectre-npz"),
                   "session": q(f"{chip}-{rank + 1}"), "chip": q(chip), "room": q("home_lab"), "label": q(truth)}
            if label == "baseline":
                row["skip_s"] = 3.0  # not quiet yet: the origin drops the first 300 packets too
            rows.append(row)
    rows.append({"path": q(f"{relative}/espectre/test/test_c3_64sc_20260329_130804.npz"), "format": q("espectre-npz"),
                 "session": q("c3-60s"), "chip": q("c3"), "room": q("home_lab"), "skip_s": 3.0,
                 "truth": "[{ from_s = 0.0, to_s = 30.05, label = \"empty\" }, { from_s = 30.05, to_s = 60.0, label = \"motion\" }]"})
    head = """
# ESPectre's takes: five chips, quiet and movement of about 10 s each, and one take of 60 s.
# The movement begins at packet 3040 of the long take; its clock is packets times duration / number of packets.
[evaluate]
task = "motion"
leave_one_out = "session"
"""
    write("espectre.toml", head, rows)


def ialr_row(name):
    text = bz2.open(f"{data}/ialr-esp32s3-motion/{name}", "rt").read()
    rows = list(csv.DictReader(io.StringIO(text)))
    start = int(rows[0]["host_unix_us"])
    stretches, last = [], None
    for row in rows:
        t = (int(row["host_unix_us"]) - start) / 1e6
        key = None if row["settling"] == "1" else ("motion" if row["label"] == "2" else "empty")
        if last is not None and (key != last[2] or t - last[1] > 1.0):
            stretches.append(last)
            last = None
        if key is not None:
            last = [last[0] if last else t, t, key]
        else:
            last = None
    if last is not None:
        stretches.append(last)
    parts = ",\n  ".join(f'{{ from_s = {a:.2f}, to_s = {b + 0.05:.2f}, label = "{k}" }}' for a, b, k in stretches if b > a)
    room = "2" if name.startswith("room2") else "1"
    return {"path": q(f"{relative}/ialr-esp32s3-motion/{name}"), "format": q("ialr"),
            "session": q(name.split(".")[0]), "chip": q("s3"), "room": q(room), "truth": "[\n  " + parts + ",\n]"}


def ialr():
    parts = [f"part_{i}.csv.bz2" for i in range(1, 8)] + ["room2_part_1.csv.bz2"]
    head = """
# IALR: ESP32-S3, 10 amplitude rows a second, two rooms; parts 5 to 7 with air conditioning, drift and gentle movement.
# Rows marked as settling carry no label here.
[evaluate]
task = "motion"
leave_one_out = "%s"
"""
    write("ialr.toml", head % "session", [ialr_row(p) for p in parts])
    write("ialr-train.toml", head % "none", [ialr_row(p) for p in parts[:4]])
    write("ialr-validate.toml", head % "none", [ialr_row(p) for p in parts[4:7]])
    write("ialr-room2.toml", head % "none", [ialr_row(parts[7])])


def pulse():
    rows = []
    for take in range(1, 5):
        for stem, truth in (("vacio", "empty"), ("mov", "motion")):
            rows.append({"path": q(f"{relative}/pulse-esp32-bedroom/presence/{stem}_0{take}.csv.bz2"), "format": q("csi-tool"),
                         "session": q(f"take-{take}"), "chip": q("esp32"), "room": q("bedroom"), "label": q(truth)})
    write("pulse.toml", """
# Pulse: one bedroom, empty and walking in turn. Takes 1 and 2 were open for tuning, 3 and 4 were not.
[evaluate]
task = "motion"
leave_one_out = "session"
""", rows)


def hhjh():
    rows = [{"path": q(f"{relative}/hhjh-esp32s3-fall/{n}.txt.bz2"), "format": q("csi-raw"), "session": q("hhjh"),
             "chip": q("s3"), "room": q("dormitory"), "label": q(t)} for n, t in (("still", "still"), ("motion", "motion"))]
    write("hhjh.toml", """
# hhjh: a dormitory, "still" (not said whether empty or somebody still) and walking. Never used for tuning.
[evaluate]
task = "motion"
leave_one_out = "none"
""", rows)


espectre(), ialr(), pulse(), hhjh()
