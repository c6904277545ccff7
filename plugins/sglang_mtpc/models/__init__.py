"""Model classes for SGLang's registry, which imports every module of this package."""
