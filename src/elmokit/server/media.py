"""Bodies become what a header calls them: the media types that service and client speak of."""

JSON = "application/json"
NPY = "application/x-npy"
NPZ = "application/x-npz"
