"""Random histories: two servers, every endpoint, every kind of trouble, and a witness who sees every write of the API.

`python -m tests.reliability.history --minutes 120 --setup mixed --seed 1` runs one for hours. `driver` puts it
together; `machines` is what there really is, `demands` and `witness` are the arithmetic, which shares no code with
Aliquot.
"""
