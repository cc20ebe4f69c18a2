; Speculative decoding as one entry ("Fast Inference from Transformers via Speculative Decoding", Leviathan et al. 2023):
; a table of words drafts, a transformer's layer looks at a last word and all that was drafted at once, and what it would
; have chosen itself is kept.  Keys and values are a state that the loop's steps write: of words that were not kept, they
; are replaced by the next step's.
(require nn arrays)
(config vocab 12  width 8  drafts 3  length 20)
(weights (table [vocab width]) (places [(+ length drafts 1) width]) (qkv-w [(* 3 width) width]) (out-w [width width])
  (up-w [(* 2 width) width]) (down-w [width (* 2 width)]) (draft-w [vocab vocab]))
(state (cache [2 (+ length drafts 1) width]))

; the logits behind each of `words` [n], which stand at `place` and behind it
(defn logits [words place]
  (let [n (dim words 0)
        at-place (fn [x part] (write-state (cache part)
                                           (insert x (read-state (cache part)) [(cast place index) 0] [n width])))
        x (+ (rows table words) (slice places [(cast place index) 0] [n width]))
        [q k v] (split (matmul-transposed x qkv-w) [width width width] 1)
        [keys values] [(at-place k 0) (at-place v 1)]
        scores (* (/ 1.0 (sqrt (* 1.0 width))) (matmul-transposed q keys))
        seen (tensor [i n j (dim keys 0)]
               (select (<= (cast j i32) (+ place (cast i i32))) (at scores i j) -1e9))
        x (+ x (matmul-transposed (product-of (softmax seen) values) out-w))]
    (matmul-transposed (+ x (matmul-transposed (relu (matmul-transposed x up-w)) down-w)) table)))
(defn product-of [a b] (contract [i j] a [i k] b [k j]))

; one word more than was drafted well: what the layer chooses behind each word, up to the first draft that it would not
(defn step [[text count] _]
  (let [last (slice text [(cast (- count 1) index)] [1])
        [_ drafted] (scan (fn [word _] (let [next (argmax (rows draft-w word))] [next next])) last drafts)
        drafted (reshape drafted [drafts])
        chosen (argmax (logits (join [last drafted] 0) (- count 1)))
        same (tensor [i drafts] (select (= (at chosen i) (at drafted i)) (: 1 i32) (: 0 i32)))
        kept (reduce + 0 (cumprod same 0))]
    [[(insert chosen text [(cast count index)] [(+ drafts 1)]) (+ count 1 (at kept))] nil]))

(entry write [(first-word [1] i32)]
  (let [text (insert first-word (full [(+ length drafts 1)] 0 i32) [0] [1])
        [[text count] _ rounds] (scan step [text (: 1 i32)] length {:while (fn [[_ count]] (< count length))})]
    {:words (slice text [0] [length]) :rounds rounds}))
