from clawpipe.training.launch import run_training
from safetensors.torch import load_file
Z="/work/main/configs/accelerate/zero3.yaml"
def test_z(request_for, here, tiny_llama, tmp_path):
    for train in ({"lora":{"rank":4,"alpha":8,"dropout":0.0}},{"adapter":"full"}):
        n=train.get("adapter","lora")
        a=[]; one=here(request_for("alone"+n,train=train), a.append)
        b=[]; two=run_training(request_for("two"+n,train=train,processes=2,accelerate=Z), tmp_path/("two"+n), 300, b.append)
        for x,y in zip(a,b): print(n, x["loss"],y["loss"],x["grad_norm"],y.get("grad_norm"))
        f="adapter/adapter_model.safetensors" if n=="lora" else "model/model.safetensors"
        p,q=load_file(one/f),load_file(two/f)
        print(sorted(p)==sorted(q), max(float((p[k]-q[k]).abs().max()) for k in p), sorted(set(q)-set(p)))
