"""A vision transformer beside a vision token Turing machine of equal width: an example of ``fsd_core.log_run``."""
