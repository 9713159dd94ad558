# Records of one answer to a pull, out of the log's mapping.

def gather(
    list entries, object accepts, object view, int64_t start, int64_t end, int32_t filler, Py_ssize_t count_max,
    Py_ssize_t bytes_max, Py_ssize_t copied_max, bint whole,
):
    """Return (bytes of the records one behind the other, their number, entries passed, end of the last record).

    `entries` are (position, size, code) of a queue, `view` what stands from `start` on, `end` how far it may be read.
    None when an entry leads out of that or back, or is a `filler`, when no record is wanted, when they are larger than
    `copied_max`, and when the entries end before the answer is full and are not the `whole` of what may be looked at.
    """
    cdef Py_ssize_t i, count = 0, size = 0, passed = 0, all_of = PyList_GET_SIZE(entries)
    cdef int64_t position, length, behind = start, last = 0
    cdef int64_t positions[ROWS_MAX]
    cdef int64_t lengths[ROWS_MAX]
    cdef Py_buffer buffer
    cdef unsigned char* to
    cdef tuple entry
    cdef bytes made
    if all_of > ROWS_MAX:
        return None
    PyObject_GetBuffer(view, &buffer, PyBUF_SIMPLE)
    try:
        if end > start + buffer.len:
            return None
        while passed < all_of:
            entry = <tuple>entries[passed]
            position, length = entry[0], entry[1]
            # In the order of the log, as queues are: else they are not all between the first and the last one.
            if length == filler or length <= 0 or position < behind or position > end - length:
                return None
            behind = position + length
            if accepts is None or entry[2] in accepts:
                if count and (count >= count_max or size + length > bytes_max):
                    break
                positions[count], lengths[count] = position - start, length
                count += 1
                size += length
                last = position + length
            passed += 1
        if count == 0 or size > copied_max or (passed == all_of and count < count_max and not whole):
            return None
        made = PyBytes_FromStringAndSize(NULL, size)
        to = <unsigned char*>PyBytes_AS_STRING(made)
        for i in range(count):
            memcpy(to, <unsigned char*>buffer.buf + positions[i], lengths[i])
            to += lengths[i]
    finally:
        PyBuffer_Release(&buffer)
    return made, count, passed, last
