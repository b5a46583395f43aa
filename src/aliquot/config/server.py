"""The declaration of `aliquot server`, with its checks."""

from aliquot.config.checks import problems
from aliquot.config.declaration import Declaration
from aliquot.config.server_tree import ServerConfig

SERVER = Declaration(ServerConfig, problems)
