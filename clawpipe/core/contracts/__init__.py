"""Read data contracts (`data_contracts/`), and apply them to datasets and files."""

from clawpipe.core.contracts.odcs import Contract, contract_names, load_contract
from clawpipe.core.contracts.schema import schema_of

__all__ = ["Contract", "contract_names", "load_contract", "schema_of"]
