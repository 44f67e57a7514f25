def find_all(*a): pass
