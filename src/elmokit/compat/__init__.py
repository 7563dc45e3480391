"""The ancestors' faces: what old programs call, done by elmokit."""
