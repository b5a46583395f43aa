"""Why a pod fits or does not, in words with numbers, and what would make it fit."""
