"""The ledger of promotions and looks: in a home, or where homes that share a registry share it as well."""
