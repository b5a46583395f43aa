import time, json, pytest
from tests.e2e.test_schedulers import *
def test_keti(scheduling):
    pod = example("keti")
    scheduling.create(gpu_node("n1", "keti"))
    scheduling.ensure_namespace("userpod")
    with scheduled(scheduling, System("native","native","keti",NATIVE)) as (a, r):
        scheduling.create(pod)
        time.sleep(2)
        print(json.dumps(scheduling.pods()[0]["status"]))
        print([(c.verb,c.pod,c.answer) for c in r.calls])
        print(scheduling.nodes()[0]["status"]["allocatable"])
def test_model(scheduling):
    models = (make_gpu(0, "n1"), make_gpu(1, "n1", model="A10", mib=23028))
    cards = make_cards("n1")
    mixed = type(cards)(cards.node, models, cards.unit_mib)
    scheduling.create(gpu_node("n1", "nvidia", mixed))
    for name, value in {"preemptor": 1000, "low-5": 5, "low-10": 10}.items():
        scheduling.ensure_priority(name, value)
    holders = {"on-t4": ("Tesla T4", "low-5"), "on-a10": ("A10", "low-10")}
    with scheduled(scheduling, NVIDIA) as (s, recorder):
        for name, (model, low) in holders.items():
            wish = {"nvidia.com/gpu.model": model}
            scheduling.create(asking(name, {"nvidia.com/gpu": 1}, annotations=wish, priorityClassName=low))
            scheduling.wait_bound(name)
            print(scheduling.wait_annotated(name, PLACEMENT)["metadata"]["annotations"])
        wish = {"nvidia.com/gpu.model": "A10"}
        scheduling.create(asking("new", {"nvidia.com/gpu": 1}, annotations=wish, priorityClassName="preemptor"))
        scheduling.wait_bound("new", seconds=60)
        print(scheduling.wait_annotated("new", PLACEMENT)["metadata"]["annotations"])
        print([(c.verb,c.pod,c.answer) for c in recorder.calls])
        print(s.process.tail(50))
