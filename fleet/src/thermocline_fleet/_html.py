def page(report):
    return ""
