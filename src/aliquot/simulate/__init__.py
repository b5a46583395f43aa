"""The simulator: pods arrive on a described cluster, and the engine places them as the server would.

What may enter: sources of clusters and pods, orders of arrival, the run, what is measured, and questions about runs.
"""
