"""The process that owns a device, the devices, the services beside it and their locks."""
