"""Names of any text in the paths of the API and the dashboard: `{account:name}` is the rest of a path."""

from starlette.convertors import PathConvertor, register_url_convertor


class RestOfPath(PathConvertor):
    """The rest of a path as a route's parameter, with its slashes, also where it has lines."""

    regex = "(?s:.*)"


register_url_convertor("name", RestOfPath())
