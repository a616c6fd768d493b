"""Whether a question fits the rows that it is about, before anything is computed."""

from cofed.sites.design import Design
from cofed.sites.packing import Malformed
from cofed.sites.queries.base import Message, n_responses
from cofed.sites.queries.survival import GroupsMessage
from cofed.sites.questions import Question


def check_fit(question: Question, p: int) -> None:
    """Refuse a message whose arrays do not fit p features or one another, before anything is computed."""
    query, message = question.query, question.message
    scaling = message.scaling
    if scaling is not None and not (scaling.centre.shape == scaling.width.shape == (p,)):
        raise Malformed(f"the question's units are for {scaling.centre.shape} features, but there are {p} here")
    try:
        query.shape(message, p)
    except Exception as error:  # whatever JAX says of arrays that do not fit
        raise Malformed(
            f"the question {query.name} does not fit {p} features, or its arrays do not fit each other "
            f"({type(error).__name__})"
        ) from None


def check_loss(message: Message, design: Design) -> None:
    """Refuse a loss that is not for the design's target: one of times to an event, and of no other; one of as many
    responses as there are."""
    check_responses(message, design)
    of_times = design.target is not None and design.target.event is not None
    if isinstance(message, GroupsMessage) and design.weight is not None:
        raise Malformed("life tables and log-rank tests are of rows that count alike, and the design has weights")
    if message.loss is not None and message.loss.of_times != of_times:
        other = "is not" if of_times else "is"
        raise Malformed(f"the question's loss, {type(message.loss).__name__}, {other} one of times to an event")


def check_responses(message: Message, design: Design) -> None:
    """Refuse a question about another number of responses than the design's target has."""
    there = 1 if design.target is None or design.target.event is not None else len(design.target.columns)
    if there > 1 and design.offset is not None:
        raise Malformed("several responses take no offset")
    centre = () if message.scaling is None else message.scaling.label_centre
    asked = {n_responses(message.loss)} if message.loss is not None else set()
    asked |= {len(centre)} if isinstance(centre, tuple) and centre else set()
    if asked - {there}:
        raise Malformed(f"the question is about {max(asked)} responses, and the target has {there} here")
