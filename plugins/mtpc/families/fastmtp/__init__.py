"""FastMTP (Cai et al. 2025): one MTP layer, applied recursively, drafts several tokens (no window part)."""
