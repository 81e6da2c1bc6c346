"""Model calls as typed requests: what is asked, how it is written as a prompt, how an answer is read.

Backbones that reach the network live in `resources`; the offline backbone `rules` lives here.
"""
