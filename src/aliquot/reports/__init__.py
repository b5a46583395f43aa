"""Reports: pure functions of a cluster state and what else is known. Commands print them, the read endpoints answer
them as JSON, and the leader writes the reasons on the pods. There is one text for one fact."""
