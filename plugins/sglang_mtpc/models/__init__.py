"""Models that SGLang's registry is told of when FASTMTP is asked for; it imports every module of this package."""
