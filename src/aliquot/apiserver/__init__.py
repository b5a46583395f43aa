"""What every Kubernetes API server needs to serve objects: a store with a log of events, lists in pages, watches,
selectors, Tables and `Status` errors. It knows neither HTTP nor the rules of any resource.
"""
