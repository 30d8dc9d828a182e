"""The side-by-side benchmark that bench/peers starts."""
