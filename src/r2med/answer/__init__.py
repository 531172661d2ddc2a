"""Answers: does better retrieval give better answers?"""
