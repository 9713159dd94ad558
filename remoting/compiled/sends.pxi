# The sends of one read: their records and their answers.

cdef class SendRows:
    """Usual sends that stand next to one another in what a connection sent; made by cut_sends()."""

    cdef Row* rows
    cdef unsigned char* texts
    cdef Py_ssize_t count
    cdef readonly bytes data
    """The frames."""
    cdef readonly list topics
    """The topics of all, each once."""
    cdef readonly list queues_max
    """The highest queue id of each topic."""
    cdef readonly Py_ssize_t body_bytes
    """Of all bodies; and the longest body, and the longest properties."""
    cdef readonly Py_ssize_t body_max
    cdef readonly Py_ssize_t properties_bytes
    cdef readonly Py_ssize_t properties_max
    cdef readonly int sys_flags
    """All bits that are set in any sysFlag."""

    def __dealloc__(self):
        PyMem_Free(self.rows)
        PyMem_Free(self.texts)

    def __len__(self):
        return self.count

    def frames(self):
        """Return (header, body) of each."""
        cdef Py_ssize_t i
        return [
            (
                self.data[self.rows[i].header_at : self.rows[i].header_at + self.rows[i].header_size],
                self.data[self.rows[i].body_at : self.rows[i].body_at + self.rows[i].body_size],
            )
            for i in range(self.count)
        ]

    def places(self):
        """Return (topic, queue id, unique key) of each."""
        cdef Py_ssize_t i
        cdef Row* row
        found = []
        for i in range(self.count):
            row = &self.rows[i]
            uniq = (<char*>self.texts + row.properties_at + row.indexed.uniq_at)[: row.indexed.uniq_size]
            found.append((self.topics[row.topic], row.queue_id, uniq.decode("ascii")))
        return found

    def placed(self):
        """Return (position, queue offset) of each."""
        cdef Py_ssize_t i
        return [(self.rows[i].position, self.rows[i].offset) for i in range(self.count)]

    def fields(self, bytes suffix):
        """Return (topic, queue id, flag, sysFlag, born timestamp, body, properties as they are stored) of each."""
        cdef Py_ssize_t i
        cdef Row* row
        found = []
        for i in range(self.count):
            row = &self.rows[i]
            text = (<char*>self.texts + row.properties_at)[: row.properties_size] + suffix
            body = self.data[row.body_at : row.body_at + row.body_size]
            found.append((self.topics[row.topic], row.queue_id, row.flag, row.sys_flag, row.born, body, text))
        return found

    def place(self, object dispatched_type, list named, list sys_flags, bytes born_host, bytes store_host, bytes suffix,
              dict next_offsets, object next_offset, int64_t end, int64_t timestamp, object crc32):
        """Return (records back to back, what each dispatches) as they stand from position `end` on.

        `named` and `sys_flags` have (magic, topic as a record holds it) and what is set in the sysFlag, by topic.
        """
        cdef Py_ssize_t i, born = PyBytes_GET_SIZE(born_host), store = PyBytes_GET_SIZE(store_host)
        cdef Py_ssize_t suffix_size = PyBytes_GET_SIZE(suffix), fixed, total = 0, size, text_size
        cdef Row* row
        cdef bytes topic_field, blob, data = self.data
        cdef unsigned char* to
        cdef Bytes body, text
        cdef uint32_t crc
        cdef int64_t offset
        cdef list batch = []
        cdef bytes none = b"", tags
        fixed = 4 * 5 + 8 + 8 + 4 + 8 + born + 8 + store + 4 + 8 + 4
        for i in range(self.count):
            row = &self.rows[i]
            topic_field = <bytes>(<tuple>named[row.topic])[1]
            total += fixed + row.body_size + PyBytes_GET_SIZE(topic_field) + 2 + row.properties_size + suffix_size
        blob = PyBytes_FromStringAndSize(NULL, total)
        to = <unsigned char*>PyBytes_AS_STRING(blob)
        stamp = timestamp
        for i in range(self.count):
            row = &self.rows[i]
            name = <tuple>named[row.topic]
            topic_field = <bytes>name[1]
            topic = self.topics[row.topic]
            key = (topic, row.queue_id)
            known = next_offsets.get(key)
            offset = next_offset(topic, row.queue_id) if known is None else known
            next_offsets[key] = offset + 1
            body = <Bytes>PyBytes_AS_STRING(data) + row.body_at
            if row.body_size <= CRC_HERE_MAX:
                crc = _crc32(body, row.body_size)
            else:
                crc = crc32(data[row.body_at : row.body_at + row.body_size])
            text = self.texts + row.properties_at
            text_size = row.properties_size + suffix_size
            size = fixed + row.body_size + PyBytes_GET_SIZE(topic_field) + 2 + text_size
            sys_flag = row.sys_flag | <int>sys_flags[row.topic]
            _put32(to, <uint32_t>size)
            _put32(to + 4, <uint32_t>name[0])
            _put32(to + 8, crc & 0x7FFFFFFFu)
            _put32(to + 12, row.queue_id)
            _put32(to + 16, row.flag)
            _put64(to + 20, offset)
            _put64(to + 28, end)
            _put32(to + 36, <uint32_t>sys_flag)
            _put64(to + 40, row.born)
            to += 48
            memcpy(to, PyBytes_AS_STRING(born_host), born)
            to += born
            _put64(to, timestamp)
            to += 8
            memcpy(to, PyBytes_AS_STRING(store_host), store)
            to += store
            _put32(to, 0)
            _put64(to + 4, 0)
            _put32(to + 12, row.body_size)
            to += 16
            memcpy(to, body, row.body_size)
            to += row.body_size
            memcpy(to, PyBytes_AS_STRING(topic_field), PyBytes_GET_SIZE(topic_field))
            to += PyBytes_GET_SIZE(topic_field)
            to[0] = text_size >> 8
            to[1] = text_size & 0xFF
            to += 2
            memcpy(to, text, row.properties_size)
            to += row.properties_size
            memcpy(to, PyBytes_AS_STRING(suffix), suffix_size)
            to += suffix_size
            row.position, row.offset = end, offset
            tags = none
            code = 0
            if row.indexed.tags_size > 0:
                tags = (<char*>text + row.indexed.tags_at)[: row.indexed.tags_size]
                code = _hash(text + row.indexed.tags_at, row.indexed.tags_size)
            uniq = (<char*>text + row.indexed.uniq_at)[: row.indexed.uniq_size]
            keys = none
            if row.indexed.keys_size > 0:
                keys = (<char*>text + row.indexed.keys_at)[: row.indexed.keys_size]
            batch.append(_eleven(
                dispatched_type, topic, row.queue_id, offset, end, size, code, stamp, uniq, keys, sys_flag, tags
            ))
            end += size
        return blob, batch

    def answers(self, tuple pieces):
        """Return the answers of all, back to back, once they are placed; `pieces` stand around what differs.

        What differs: queue id, unique key, position in 16 hexadecimal digits, queue offset, opaque.
        """
        cdef Py_ssize_t i, fixed = 0, total = 0
        cdef Row* row
        cdef bytes p0, p1, p2, p3, p4, p5, blob
        cdef unsigned char* begin
        cdef unsigned char* head
        cdef unsigned char* to
        p0, p1, p2, p3, p4, p5 = pieces
        for piece in pieces:
            fixed += PyBytes_GET_SIZE(piece)
        for i in range(self.count):
            total += 8 + fixed + 10 + self.rows[i].indexed.uniq_size + 16 + 20 + 10
        blob = PyBytes_FromStringAndSize(NULL, total)
        begin = to = <unsigned char*>PyBytes_AS_STRING(blob)
        for i in range(self.count):
            row = &self.rows[i]
            head = to
            to = _copy(to + 8, p0)
            to = _decimal(to, row.queue_id)
            to = _copy(to, p1)
            memcpy(to, self.texts + row.properties_at + row.indexed.uniq_at, row.indexed.uniq_size)
            to = _copy(to + row.indexed.uniq_size, p2)
            to = _hexadecimal(to, row.position)
            to = _copy(to, p3)
            to = _decimal(to, row.offset)
            to = _copy(to, p4)
            to = _decimal(to, row.opaque)
            to = _copy(to, p5)
            _put32(head, <uint32_t>(to - head - 4))
            _put32(head + 4, <uint32_t>(to - head - 8))
        return blob[: to - begin]


def cut_sends(bytes data not None, Py_ssize_t at, Py_ssize_t most, Py_ssize_t limit):
    """Return the usual sends that stand whole in `data` from `at` on, at most so many; None when the first is not one.

    `limit`: bytes of a frame behind its length. len(result.data) bytes of `data` are theirs.
    """
    cdef Py_ssize_t end = PyBytes_GET_SIZE(data), begin = at, room = 16, text_at = 0, topic_size, last_size = -1
    cdef Py_ssize_t count = 0, length, header_size, body_max = 0, properties_max = 0, body_bytes = 0
    cdef Bytes whole = <Bytes>PyBytes_AS_STRING(data)
    cdef Bytes topic, last_topic = NULL
    cdef Row* rows
    cdef Row* row
    cdef unsigned char* texts
    cdef Cursor cursor
    cdef Send send
    cdef int sys_flags = 0, topic_index = -1
    cdef list topics = [], queues_max = []
    cdef SendRows found
    if at < 0 or end - at < 32:
        return None
    if most > ROWS_MAX:
        most = ROWS_MAX
    found = SendRows.__new__(SendRows)
    found.rows = rows = <Row*>PyMem_Malloc(room * sizeof(Row))
    # Escapes only make properties longer: with the 0x02 that may be added they fit into what they came in.
    found.texts = texts = <unsigned char*>PyMem_Malloc(end - at)
    if rows == NULL or texts == NULL:
        raise MemoryError
    while count < most and end - at >= 8:
        length = _u32(whole + at)
        if length < 4 or length > limit or length > end - at - 4:
            break
        header_size = _u32(whole + at + 4)
        # A serialize type of 0, JSON, leaves the high byte empty.
        if header_size > length - 4 or header_size > 65536 or length - 4 - header_size >= BODY_BYTES_MAX:
            break
        if count == room:
            room *= 4
            rows = <Row*>PyMem_Realloc(found.rows, room * sizeof(Row))
            if rows == NULL:
                raise MemoryError
            found.rows = rows
        row = rows + count
        cursor.at = whole + at + 8
        cursor.end = cursor.at + header_size
        row.properties_size = 0
        send.row, send.texts = row, texts + text_at
        if not _request(&cursor, 310, &row.opaque, _send_fields, &send):
            break
        topic, topic_size = send.topic, send.topic_size
        if header_size > HEADER_BYTES_FREE and header_size > row.properties_size + HEADER_BYTES_FREE:
            break
        if not _index(texts + text_at, row.properties_size, &row.indexed, True):
            break
        if row.indexed.uniq_size < 0 or not _alnum(texts + text_at + row.indexed.uniq_at, row.indexed.uniq_size):
            break
        if topic_size != last_size or memcmp(topic, last_topic, topic_size) != 0:
            name = PyUnicode_DecodeASCII(<char*>topic, topic_size, NULL)
            if name in topics:
                topic_index = topics.index(name)
            else:
                if len(topics) == TOPICS_MAX:
                    break
                topic_index = len(topics)
                topics.append(name)
                queues_max.append(0)
            last_topic, last_size = topic, topic_size
        row.topic = topic_index
        if row.queue_id > <int>queues_max[topic_index]:
            queues_max[topic_index] = row.queue_id
        if texts[text_at + row.properties_size - 1] != 2:
            texts[text_at + row.properties_size] = 2
            row.properties_size += 1
        row.properties_at = <int32_t>text_at
        text_at += row.properties_size
        row.header_at = <int32_t>(at + 8 - begin)
        row.header_size = <int32_t>header_size
        row.body_at = row.header_at + row.header_size
        row.body_size = <int32_t>(length - 4 - header_size)
        sys_flags |= row.sys_flag
        body_bytes += row.body_size
        if row.body_size > body_max:
            body_max = row.body_size
        if row.properties_size > properties_max:
            properties_max = row.properties_size
        at += 4 + length
        count += 1
    if not count:
        return None
    # What else was read lives as long as its own commands.
    texts = <unsigned char*>PyMem_Realloc(found.texts, text_at)
    if texts != NULL:
        found.texts = texts
    found.count = count
    # Not all of what was read lives on with some of it.
    found.data = data[begin:at]
    found.topics, found.queues_max, found.sys_flags = topics, queues_max, sys_flags
    found.body_bytes, found.body_max = body_bytes, body_max
    found.properties_bytes, found.properties_max = text_at, properties_max
    return found
