; What a loss over whole texts (`whole-texts`) keeps of a model for its gradient.  Outside of one, all of this is nothing.
(require-dialect tensor)

; x as a gradient and products read it: in whole texts in the config's activation-type, where it says one
(defn stored [x]
  (let [kind (if (text-rows) (configured "activation-type" f32) f32)]
    (if (= kind f32) x (cast x kind))))

; (f x …), of which a gradient over whole texts computes what is within again instead of keeping it
(defmacro again [f & xs]
  `(if (text-rows) (recompute ~f ~@xs) (~f ~@xs)))

; table [positions width] -> what it has for the place of each row of the texts, or of its document, [rows width]
(defn place-rows [table]
  (let [[texts length] (text-rows)
        width (dim table 1)
        part (slice table [0 0] [length width])
        place (fn [b t] (fold (fn [place starts] (- place (cast (at starts b t) index))) t (text-starts)))]
    (reshape (tensor [b texts t length c width] (at part (place b t) c)) [(* texts length) width])))

; ---- documents: of texts that are several, one behind the other, a row looks at its own

; tokens [texts length], of which each `token` begins a document -> where the document of each begins, i32 [texts length];
; nil for a token below 0, which is none
(defn document-starts [tokens token]
  (if (< token 0)
    nil
    (let [[texts length] (shape tokens)]
      (reduce max 0 (tensor [b texts t length s length]
                      (select (and (<= s t) (= (at tokens b s) token)) (cast s i32) 0))))))

; score, where the document of row `row` of a text has begun by position t; else -inf
(defn in-document [score text t row]
  (fold (fn [score starts] (select (>= (cast t i32) (at starts text row)) score -inf)) score (text-starts)))
