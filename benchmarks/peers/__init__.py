"""cofed beside its peers: the same jobs, in one run, each contender in an environment of its own.

python -m benchmarks.peers [--jobs lasso,cnn] [--contenders cofed,fedjax] [--seconds 5]
"""
