"""The hot path's compiled half: a Cython module that is built where a C compiler is, and never needed (door.py)."""
