"""A stand-in for EC2 Auto Scaling and EC2 in one region, with the rules of AWS' documentation.

An answer can be stale, a termination waits for a lifecycle hook, and AWS' own processes run at each request: they
launch what is missing, end what is too much, and rebalance zones. Two rules are harder than AWS': a second request to
terminate an instance lowers the desired capacity again, and the minimum is not enforced unless a test asks for it.
"""
