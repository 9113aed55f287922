"""A model for MLServer: its output is its input, doubled."""

from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse


class Echo(MLModel):  # type: ignore[misc]
    """See the module."""

    async def load(self) -> bool:
        """There is nothing to load."""
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Double the first input."""
        values = NumpyCodec.decode_input(payload.inputs[0])
        output = NumpyCodec.encode_output("doubled", values * 2)
        return InferenceResponse(model_name=self.name, outputs=[output])
