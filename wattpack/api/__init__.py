"""The API objects of wattpack.io/v1alpha1 as pydantic models; CRDs are generated from them."""
