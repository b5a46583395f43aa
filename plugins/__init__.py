"""`make plugins`: each kubectl plug-in as one file that needs nothing but a Python.

The file is a zip archive that Python can run. Some of the packages in it have C parts, which cannot be imported from an
archive: on its first run it unpacks the files for the Python that runs it into the user's cache, as shiv and pex do.
A file has the C parts for several versions of Python, and each file that these have in common only once.
"""
