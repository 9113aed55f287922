"""Asks a KServe v2 server over REST and gRPC with Triton's client: the arguments are its addresses.

Written to stdout as JSON.
"""

import json
import sys
import urllib.request

import numpy as np
import tritonclient.grpc as triton

rest, grpc = sys.argv[1:3]
values = np.arange(50_000, dtype=np.float32).reshape(1, -1)

client = triton.InferenceServerClient(grpc)
tensor = triton.InferInput("values", list(values.shape), "FP32")
tensor.set_data_from_numpy(values)
doubled = client.infer("echo", [tensor]).as_numpy("doubled")

request = {
    "inputs": [{"name": "values", "shape": [1, 3], "datatype": "FP32", "data": [1.0, 2.0, 3.0]}]
}
asked = urllib.request.Request(
    f"http://{rest}/v2/models/echo/infer",
    data=json.dumps(request).encode(),
    headers={"content-type": "application/json"},
)
with urllib.request.urlopen(asked, timeout=20) as response:
    answer = json.load(response)
with urllib.request.urlopen(f"http://{rest}/v2/health/ready", timeout=20) as response:
    ready = response.status

try:
    client.infer("missing", [tensor])
    missing = ""
except triton.InferenceServerException as error:
    missing = str(error.status())

print(
    json.dumps(
        {
            "grpc_ready": client.is_model_ready("echo"),
            "grpc_right": bool(np.array_equal(doubled, values * 2)),
            "rest_ready": ready,
            "rest": answer["outputs"][0]["data"],
            "missing": missing,
        }
    )
)
client.close()
