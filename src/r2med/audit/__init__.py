"""Audits of training data: does it contain evaluation texts?"""
