"""Replicas of lispgpt's server behind Ray Serve, which starts them, watches them and spreads requests over them.

    pip install 'lispgpt[serve]' 'ray[serve]'
    MODEL=examples/models/austen REPLICAS=2 PYTHONPATH=examples serve run serve_on_ray:app

A replica keeps nothing that another one has to know: which of them answers changes no token.
"""

import os

from ray import serve

MODEL = os.path.abspath(os.environ.get("MODEL", "examples/models/austen"))
PLACES = int(os.environ.get("PLACES", "8"))


def replica():
    """What one replica runs: all of `lispgpt serve`, with its page, health and metrics."""
    import lispgpt
    from lispgpt.chat.template import find_template
    from lispgpt.serve.app import application
    from lispgpt.serve.models import Models, Served

    def loaded():
        model = lispgpt.load(MODEL, batch=PLACES, target=os.environ.get("TARGET", "cpu"))
        return Served.of(name, model, find_template(MODEL), PLACES)

    name = os.path.basename(MODEL)
    models = Models({name: loaded}, 1)
    models.end(models.begin(name))
    return application(models)


Replica = serve.deployment(serve.ingress(replica)(), name="lispgpt")
app = Replica.options(num_replicas=int(os.environ.get("REPLICAS", "1")), max_ongoing_requests=256).bind()
