"""Why a pod fits or does not fit, with numbers, and what would make it fit."""
