# The pulls of one read: their headers.

cdef enum:
    PULL_NUMBERS = 8
    PULL_TEXTS = 4

cdef struct Pull:
    # queueId, queueOffset, maxMsgNums, sysFlag, commitOffset, suspendTimeoutMillis, subVersion, maxMsgBytes.
    int64_t numbers[PULL_NUMBERS]
    # consumerGroup, topic, subscription, expressionType; of what is not there the size is -1.
    Bytes texts[PULL_TEXTS]
    Py_ssize_t sizes[PULL_TEXTS]


cdef int _pull_number(Bytes name, Py_ssize_t size, int64_t* most) noexcept nogil:
    """Return which number of a pull has that name, -1 when none has."""
    most[0] = INT32_MAX
    if _same(name, size, "queueId", 7):
        return 0
    if _same(name, size, "queueOffset", 11):
        most[0] = INT64_MAX
        return 1
    if _same(name, size, "maxMsgNums", 10):
        return 2
    if _same(name, size, "sysFlag", 7):
        return 3
    if _same(name, size, "commitOffset", 12):
        most[0] = INT64_MAX
        return 4
    if _same(name, size, "suspendTimeoutMillis", 20):
        most[0] = INT64_MAX
        return 5
    if _same(name, size, "subVersion", 10):
        most[0] = INT64_MAX
        return 6
    if _same(name, size, "maxMsgBytes", 11):
        return 7
    return -1


cdef int _pull_text(Bytes name, Py_ssize_t size) noexcept nogil:
    """Return which text of a pull has that name, PULL_TEXTS of one that nobody reads, -1 when none has."""
    if _same(name, size, "consumerGroup", 13):
        return 0
    if _same(name, size, "topic", 5):
        return 1
    if _same(name, size, "subscription", 12):
        return 2
    if _same(name, size, "expressionType", 14):
        return 3
    if _same(name, size, "bname", 5):
        return PULL_TEXTS
    return -1


cdef bint _pull_fields(Cursor* cursor, void* into) noexcept nogil:
    """Read the custom fields of a pull; False when one is there that is not usual, or one lacks."""
    cdef Pull* pull = <Pull*>into
    cdef Bytes name, text
    cdef Py_ssize_t name_size, size
    cdef int64_t most
    cdef uint32_t seen = 0, bit
    cdef int which
    if not _takes(cursor, c"{"):
        return False
    while True:
        if not _text(cursor, &name, &name_size) or not _takes(cursor, c":") or not _text(cursor, &text, &size):
            return False
        which = _pull_number(name, name_size, &most)
        if which >= 0:
            bit = 1u << which
            if not _digits(text, size, most, &pull.numbers[which]):
                return False
        else:
            which = _pull_text(name, name_size)
            if which < 0:
                return False
            bit = 1u << (PULL_NUMBERS + which)
            if which < PULL_TEXTS:
                pull.texts[which], pull.sizes[which] = text, size
        if seen & bit:
            return False
        seen |= bit
        if _takes(cursor, c"}"):
            break
        if not _takes(cursor, c","):
            return False
    # All numbers but the last, group and topic must be there.
    return seen & 0x37F == 0x37F


cdef bint _as_before(Pull* pull, Pull* before) noexcept nogil:
    """Tell whether the texts of two pulls are the same."""
    cdef int i
    for i in range(PULL_TEXTS):
        if pull.sizes[i] != before.sizes[i]:
            return False
        if pull.sizes[i] > 0 and memcmp(pull.texts[i], before.texts[i], pull.sizes[i]) != 0:
            return False
    return True


cdef object _text_or_none(Pull* pull, int which):
    return None if pull.sizes[which] < 0 else PyUnicode_DecodeASCII(<char*>pull.texts[which], pull.sizes[which], NULL)


cdef class PullRows:
    """Usual pulls that stand next to one another in what a connection sent; made by cut_pulls()."""

    cdef readonly bytes data
    """The frames."""
    cdef readonly list asked
    """(texts, opaque, and the numbers in their order) of each: texts are (consumerGroup, topic, subscription,
    expressionType), the same object for pulls of the same; maxMsgBytes is -1 where it is not there."""
    cdef list at

    def __len__(self):
        return len(self.asked)

    def frame(self, Py_ssize_t number):
        """Return (header, body) of one."""
        cdef Py_ssize_t begin, size
        begin, size = self.at[number]
        return self.data[begin : begin + size], b""


def cut_pulls(bytes data not None, Py_ssize_t at, Py_ssize_t most, Py_ssize_t limit):
    """Return the usual pulls that stand whole in `data` from `at` on, at most so many; None when the first is not one.

    `limit`: bytes of a frame behind its length. len(result.data) bytes of `data` are theirs.
    """
    cdef Py_ssize_t end = PyBytes_GET_SIZE(data), begin = at, length, header_size
    cdef Bytes whole = <Bytes>PyBytes_AS_STRING(data)
    cdef Cursor cursor
    cdef Pull pull, before
    cdef int32_t opaque
    cdef int i
    cdef list asked = [], places = []
    cdef object texts = None
    cdef PullRows found
    if at < 0 or end - at < 32:
        return None
    if most > PULLS_MAX:
        most = PULLS_MAX
    while len(asked) < most and end - at >= 8:
        length = _u32(whole + at)
        if length < 4 or length > limit or length > end - at - 4:
            break
        header_size = _u32(whole + at + 4)
        # A serialize type of 0, JSON, leaves the high byte empty; a pull has no body.
        if header_size != length - 4 or header_size > HEADER_BYTES_FREE:
            break
        cursor.at = whole + at + 8
        cursor.end = cursor.at + header_size
        pull.numbers[PULL_NUMBERS - 1] = -1
        for i in range(PULL_TEXTS):
            pull.sizes[i] = -1
        if not _request(&cursor, 11, &opaque, _pull_fields, &pull):
            break
        if texts is None or not _as_before(&pull, &before):
            texts = (
                _text_or_none(&pull, 0), _text_or_none(&pull, 1), _text_or_none(&pull, 2), _text_or_none(&pull, 3)
            )
        before = pull
        asked.append((
            texts, opaque, pull.numbers[0], pull.numbers[1], pull.numbers[2], pull.numbers[3], pull.numbers[4],
            pull.numbers[5], pull.numbers[6], pull.numbers[7],
        ))
        places.append((at + 8 - begin, header_size))
        at += 4 + length
    if not asked:
        return None
    found = PullRows.__new__(PullRows)
    # Not all of what was read lives on with some of it.
    found.data = data[begin:at]
    found.asked, found.at = asked, places
    return found
