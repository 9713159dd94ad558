"""The machine that it runs on: processes of ours, ports, namespaces, failing disks, a whole local cluster."""
