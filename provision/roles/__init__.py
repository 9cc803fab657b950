"""Domain knowledge: from inventory and facts to resources."""
