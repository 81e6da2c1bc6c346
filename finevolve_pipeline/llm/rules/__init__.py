"""The offline backbone `rules`: a lexicon of our own, no model, no network, no cost, and no
randomness but the noise that is asked for.

Here live the word lists (`*.toml`), the tagger and the predictor that read them, what it writes and reads back in order
to learn (`lessons`, `updates`), and the backbone that answers typed requests with them. What must not live here:
prompts, parsing of answers, anything that depends on the run.
"""
